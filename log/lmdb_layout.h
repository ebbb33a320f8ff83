// LMDB's on-disk layout, as far as two files here read it without LMDB (its format 1, since 2011).
#pragma once

#include <cstddef>
#include <cstring>

namespace twofold::lmdb {

inline constexpr std::size_t kPageHeaderBytes = 16;

// A number in this machine's byte order, wherever it lies.
template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace twofold::lmdb
