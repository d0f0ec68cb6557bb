// G.711 (ITU-T 1988): a byte that stands for a sample of telephone sound. Pure functions.
#pragma once

#include <cstdint>

namespace pelton::audio {

// In [-1, 1), as 16-bit samples are: 32124 / 32768 is the loudest of mu-law.
float sample_of_mu_law(uint8_t byte);
float sample_of_a_law(uint8_t byte);

}  // namespace pelton::audio
