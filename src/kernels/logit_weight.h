// The numbers that every form of kernels/logit_rows.h computes a weight with. Constants.
#pragma once

#include <cstdint>

namespace pelton::kernels {

// Added to a float below 2^22 in magnitude, leaves its nearest whole number in the lowest bits.
inline constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23

// 2^f = 1 + f (c[0] + f (c[1] + ...)) for |f| <= 1/2: the polynomial with the least relative error,
// 4.4e-7, among those that are 1 at 0 (found by Remez' exchange).
inline constexpr float kExp2Terms[] = {0.693142831325531f, 0.24022351205348969f,
                                       0.05557400360703468f, 0.009666282683610916f,
                                       0.0011125507298856974f};

// Below this exponent a weight is less than half a unit of 2^-41, and so 0.
inline constexpr float kExponentMin = -60.0f;

// A double of 2^11 plus a weight of at most 1 holds the weight's units of 2^-41 in its lowest bits.
inline constexpr double kUnitShift = 2048.0;
inline constexpr uint64_t kUnitShiftBits = 0x40A0000000000000;

}  // namespace pelton::kernels
