// The documents that the code prints of itself, so that they cannot say
// anything else: docs/CONFIG.md, docs/METRICS.md, config/*.yaml.

#ifndef FIRNKV_SERVER_BIN_DOCUMENTS_H_
#define FIRNKV_SERVER_BIN_DOCUMENTS_H_

#include <string>

namespace firnkv {

// "config", "metrics", "node.yaml" or "catalog.yaml", to standard output.
// Returns an exit code.
int PrintDocument(const std::string& name);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_DOCUMENTS_H_
