# The outside libraries, all from Debian 12, and the names by which a folder
# lists them in DEPS:
#
#   absl::<part>        Abseil (absl::status, absl::synchronization, ...)
#   OpenSSL::Crypto     libcrypto: SHA-256, HMAC
#   firnkv::isal        ISA-L: CRC32C
#   protobuf::libprotobuf
#   firnkv::uring       liburing
#   yaml-cpp  spdlog::spdlog
#   GTest::gtest  GTest::gmock  Threads::Threads
#
# and, only where FIRNKV_SANITIZE is empty:
#
#   firnkv::grpc        gRPC C++ with reflection
#   firnkv::rocksdb     RocksDB
#   firnkv::ucx         UCX: ucp and ucs
#   firnkv::prometheus  prometheus-cpp: core
#   firnkv::httplib     cpp-httplib: /metrics, /healthz, /configz
#   CLI11::CLI11  benchmark::benchmark

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
# CMake's own module: Debian's protobuf comes without a config file. The
# generator is called directly in firnkv.cmake.
find_package(Protobuf REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)

# Declares firnkv::<name> for what pkg-config calls by the modules given.
function(firnkv_pkg_config name)
  pkg_check_modules(pc_${name} REQUIRED IMPORTED_TARGET ${ARGN})
  add_library(firnkv_dep_${name} INTERFACE)
  target_link_libraries(firnkv_dep_${name} INTERFACE PkgConfig::pc_${name})
  add_library(firnkv::${name} ALIAS firnkv_dep_${name})
endfunction()

firnkv_pkg_config(isal libisal)
firnkv_pkg_config(uring liburing)

if(NOT FIRNKV_SANITIZE)
  find_package(CLI11 CONFIG REQUIRED)
  find_package(benchmark CONFIG REQUIRED)
  firnkv_pkg_config(grpc grpc++ protobuf)
  # Reflection has no pkg-config file; the static library would register its
  # plugin only when linked whole, the shared one does so when loaded.
  find_library(FIRNKV_GRPC_REFLECTION grpc++_reflection REQUIRED)
  add_library(firnkv_dep_reflection UNKNOWN IMPORTED)
  set_target_properties(firnkv_dep_reflection PROPERTIES
                        IMPORTED_LOCATION ${FIRNKV_GRPC_REFLECTION})
  target_link_libraries(firnkv_dep_grpc INTERFACE firnkv_dep_reflection)
  # The shared library: the static one is not position independent
  # everywhere, and takes seconds a link.
  firnkv_pkg_config(rocksdb rocksdb)
  firnkv_pkg_config(ucx ucx)
  # The serialiser only: the exposer of -pull serves /metrics and nothing else.
  firnkv_pkg_config(prometheus prometheus-cpp-core)
  firnkv_pkg_config(httplib cpp-httplib)
endif()
