#include "proto/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

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

Sha256Bytes HmacSha256(std::string_view key, std::string_view bytes) {
  Sha256Bytes mac;
  unsigned int size = 0;
  const unsigned char* const done =
      HMAC(Algorithm(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           mac.data(), &size);
  CHECK(done != nullptr && size == mac.size());
  return mac;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace firnkv
