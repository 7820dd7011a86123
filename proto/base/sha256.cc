#include "proto/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstddef>
#include <string>

#include "proto/base/check.h"

namespace firnkv {
namespace {

// Fetched once: libcrypto's one-shot SHA256() looks its algorithm up by name on
// each call, which costs several times the hash of 48 bytes. Never freed, so
// that no destructor runs at exit.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm =
      EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm != nullptr ? algorithm : EVP_sha256();
}

}  // namespace

// Neither call below can fail by its input: only libcrypto without memory or
// without SHA-256 fails, and no key or token of such a process could be right.

Sha256Bytes Sha256(std::string_view bytes) {
  Sha256Bytes digest;
  unsigned int size = 0;
  const int done = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size,
                              Algorithm(), nullptr);
  CHECK(done == 1 && size == digest.size());
  return digest;
}

// RFC 2104, of two hashes: libcrypto's one-shot HMAC() looks its algorithm up
// by name on each call, which costs several times the MAC of a token.
Sha256Bytes HmacSha256(std::string_view key, std::string_view bytes) {
  constexpr std::size_t kBlockBytes = 64;
  std::string inner(kBlockBytes, '\x36');
  std::string outer(kBlockBytes, '\x5c');
  Sha256Bytes hashed;
  if (key.size() > kBlockBytes) {
    hashed = Sha256(key);
    key = {reinterpret_cast<const char*>(hashed.data()), hashed.size()};
  }
  for (std::size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  inner.append(bytes);
  const Sha256Bytes digest = Sha256(inner);
  outer.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  const Sha256Bytes mac = Sha256(outer);
  // What is left of the key.
  OPENSSL_cleanse(inner.data(), kBlockBytes);
  OPENSSL_cleanse(outer.data(), kBlockBytes);
  OPENSSL_cleanse(hashed.data(), hashed.size());
  return mac;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace firnkv
