// The tenant that every cluster has from its first start on.

#ifndef FIRNKV_PROTO_BASE_TENANT_H_
#define FIRNKV_PROTO_BASE_TENANT_H_

namespace firnkv {

// Made by the catalog; whom a node without a uid map serves its own uid as.
inline constexpr char kDefaultTenant[] = "default";

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_TENANT_H_
