// Samples at another rate: by a windowed sinc that ends below the lower of the two rates' halves.
// Pure.
#pragma once

#include <span>
#include <vector>

namespace pelton::audio {

// As many samples as make the same time, rounded down, one at least of any. The same rate: a copy.
std::vector<float> resample(std::span<const float> samples, int from_rate, int to_rate);

}  // namespace pelton::audio
