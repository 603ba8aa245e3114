// What both files that speak with Python need: None for what did not happen, and arrays that own their numbers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

#include "units.hpp"

namespace trimtab {

inline nanobind::object optional(std::int64_t value) {
    return value == NONE ? nanobind::none() : nanobind::cast(value);
}

// A NumPy array that owns what was allocated for it; of `const T`, nobody can write into it.
template <typename Shown, typename T>
auto owning(T* data, std::size_t count) {
    nanobind::capsule owner(data, [](void* held) noexcept { delete[] static_cast<T*>(held); });
    return nanobind::ndarray<nanobind::numpy, Shown, nanobind::ndim<1>>(data, {count}, owner);
}

}  // namespace trimtab
