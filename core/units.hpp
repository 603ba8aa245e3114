// Units and whole-number arithmetic: everything is counted, nothing is measured.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace trimtab {

using Ms = std::int64_t;     // milliseconds on the engine's clock
using GpuMs = std::int64_t;  // GPUs x milliseconds
using Work = std::int64_t;   // milliseconds x parts per million of full speed
using JobId = std::int32_t;  // dense index in submit order

__extension__ typedef __int128 Wide;  // products that may exceed 64 bits

inline constexpr std::int64_t FULL_SPEED_PPM = 1'000'000;

// "None" of the reference engine; no instant and no place is ever this small.
inline constexpr std::int64_t NONE = INT64_MIN;

// What lies beyond every instant of a simulation.
inline constexpr Ms NEVER_MS = std::int64_t{1} << 62;

inline constexpr std::int64_t floor_div(std::int64_t number, std::int64_t by) {
    const std::int64_t quotient = number / by;
    return quotient - (number % by < 0 ? 1 : 0);
}

inline constexpr std::int64_t floor_mod(std::int64_t number, std::int64_t by) {
    const std::int64_t rest = number % by;
    return rest < 0 ? rest + by : rest;
}

inline constexpr std::int64_t ceil_div(std::int64_t number, std::int64_t by) { return -floor_div(-number, by); }

// The simulation contradicts itself: a bug, never the user's fault.
struct InvariantError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A setting is not allowed.
struct ConfigError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Under these settings jobs take turns and hardly work: nobody would run them.
struct Thrashing : ConfigError {
    using ConfigError::ConfigError;
};

}  // namespace trimtab
