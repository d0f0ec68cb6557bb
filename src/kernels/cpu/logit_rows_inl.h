// The body of the vector forms of kernels/logit_rows.h: included into an unnamed namespace by each,
// after it has declared `Lanes`. A row is read in whole blocks; the last one, if it is short, from
// a copy that is filled up with -infinity.

constexpr float kNever = -std::numeric_limits<float>::infinity();

class VectorLogitRows : public LogitRows {
 public:
  std::string_view name() const override { return Lanes::kName; }

  Scan scan(std::span<float> logits, std::span<const uint64_t> allowed,
            float* block_highest) const override {
    return allowed.empty() ? scan_row<false>(logits, {}, block_highest)
                           : scan_row<true>(logits, allowed, block_highest);
  }

  Mass softmax_weights(std::span<const float> logits, LogitScale scale, float floor,
                       Mass* block_mass) const override {
    return floor == kNever ? weigh_row<false>(logits, scale, floor, block_mass)
                           : weigh_row<true>(logits, scale, floor, block_mass);
  }

  void weigh_each(std::span<const float> logits, LogitScale scale, Mass* masses) const override {
    for_blocks(logits, [&](const float* at, size_t block) {
      Mass* to = masses + block * kLogitBlock;
      for (int i = 0; i < kLogitBlock; i += Lanes::kCount) {
        Lanes::Units low;
        Lanes::Units high;
        weights(Lanes::load(at + i), scale, low, high);
        Lanes::store(to + i, Lanes::subtract(low, Lanes::units(kUnitShiftBits)));
        Lanes::store(to + i + Lanes::kCount / 2,
                     Lanes::subtract(high, Lanes::units(kUnitShiftBits)));
      }
    });
  }

  size_t collect(std::span<const float> logits, const float* block_highest, Range range,
                 float* values, TokenId* ids) const override {
    size_t found = 0;
    for_blocks(logits, [&](const float* at, size_t block) {
      if (block_highest != nullptr && block_highest[block] < range.floor) return;
      const Lanes::Floats floor = Lanes::all(range.floor);
      const Lanes::Floats ceiling = Lanes::all(range.ceiling);
      const int first = static_cast<int>(block * kLogitBlock);
      for (int i = 0; i < kLogitBlock; i += Lanes::kCount) {
        const Lanes::Floats x = Lanes::load(at + i);
        const unsigned inside = Lanes::at_least(x, floor) & ~Lanes::at_least(x, ceiling);
        if (inside == 0) continue;
        Lanes::store_chosen(x, first + i, inside, values + found, ids + found);
        found += static_cast<size_t>(__builtin_popcount(inside));
      }
    });
    return found;
  }

  size_t mark(std::span<const float> logits, const float* block_highest, float floor,
              uint64_t* marks) const override {
    constexpr size_t kWords = kLogitBlock / 64;
    const auto words = static_cast<size_t>(mark_words(static_cast<int64_t>(logits.size())));
    size_t found = 0;
    for_blocks(logits, [&](const float* at, size_t block) {
      uint64_t bits[kWords] = {};
      if (block_highest[block] >= floor) {
        for (int i = 0; i < kLogitBlock; i += Lanes::kCount) {
          const uint64_t some = Lanes::at_least(Lanes::load(at + i), Lanes::all(floor));
          bits[i / 64] |= some << (i % 64);
        }
      }
      for (size_t w = 0; w < kWords && block * kWords + w < words; ++w) {
        marks[block * kWords + w] = bits[w];
        found += static_cast<size_t>(__builtin_popcountll(bits[w]));
      }
    });
    return found;
  }

 private:
  // body(at, block): `at` points to a whole block of logits.
  template <typename Body>
  static void for_blocks(std::span<const float> logits, Body body) {
    const size_t whole = logits.size() / kLogitBlock;
    for (size_t block = 0; block < whole; ++block) body(logits.data() + block * kLogitBlock, block);
    if (whole * kLogitBlock == logits.size()) return;
    alignas(64) float rest[kLogitBlock];
    fill_up(logits.subspan(whole * kLogitBlock), rest);
    body(rest, whole);
  }

  static void fill_up(std::span<const float> logits, float* rest) {
    std::copy(logits.begin(), logits.end(), rest);
    std::fill(rest + logits.size(), rest + kLogitBlock, kNever);
  }

  template <bool kMasked>
  static Scan scan_row(std::span<float> logits, std::span<const uint64_t> allowed,
                       float* block_highest) {
    Lanes::Floats row_highest = Lanes::all(kNever);
    Lanes::Flags broken = Lanes::no_flags();
    const auto scan_block = [&](float* at, size_t block, const uint64_t* words) {
      Lanes::Floats highest = Lanes::all(kNever);
      for (int i = 0; i < kLogitBlock; i += Lanes::kCount) {
        Lanes::Floats x = Lanes::load(at + i);
        broken = Lanes::either(broken, Lanes::broken(x));
        if constexpr (kMasked) {
          const auto bits = static_cast<unsigned>(words[i / 64] >> (i % 64));
          x = Lanes::keep(x, bits, Lanes::all(kNever));
          Lanes::store(at + i, x);
        }
        highest = Lanes::max(highest, x);
      }
      block_highest[block] = Lanes::highest(highest);
      row_highest = Lanes::max(row_highest, highest);
    };

    const size_t whole = logits.size() / kLogitBlock;
    constexpr size_t kWords = kLogitBlock / 64;
    for (size_t block = 0; block < whole; ++block) {
      scan_block(logits.data() + block * kLogitBlock, block,
                 kMasked ? allowed.data() + block * kWords : nullptr);
    }
    if (const std::span<float> rest = logits.subspan(whole * kLogitBlock); !rest.empty()) {
      alignas(64) float padded[kLogitBlock];
      uint64_t words[kWords] = {};
      if (kMasked)
        std::copy(allowed.begin() + whole * kWords, allowed.begin() + (logits.size() + 63) / 64,
                  words);
      fill_up(rest, padded);
      scan_block(padded, whole, words);
      if (kMasked) std::copy_n(padded, rest.size(), rest.data());
    }
    return {.highest = Lanes::highest(row_highest), .broken = Lanes::any(broken)};
  }

  // As weight() of reference/reference_logit_rows.cc, with the shift still in it.
  static void weights(Lanes::Floats logits, LogitScale scale, Lanes::Units& low,
                      Lanes::Units& high) {
    const Lanes::Floats shift = Lanes::all(kRoundingShift);
    Lanes::Floats y = Lanes::multiply(Lanes::subtract(logits, Lanes::all(scale.highest)),
                                      Lanes::all(scale.sharpness));
    y = Lanes::max(y, Lanes::all(kExponentMin));
    const Lanes::Floats shifted = Lanes::add(y, shift);
    const Lanes::Floats f = Lanes::subtract(y, Lanes::subtract(shifted, shift));
    Lanes::Floats power = Lanes::all(kExp2Terms[4]);
    for (int term = 3; term >= 0; --term) {
      power = Lanes::multiply_add(power, f, Lanes::all(kExp2Terms[term]));
    }
    power = Lanes::multiply_add(power, f, Lanes::all(1.0f));
    Lanes::in_units(Lanes::times_power(power, shifted), low, high);
  }

  template <bool kFloor>
  static Mass weigh_row(std::span<const float> logits, LogitScale scale, float floor,
                        Mass* block_mass) {
    Mass total = 0;
    for_blocks(logits, [&](const float* at, size_t block) {
      block_mass[block] = weigh_block<kFloor>(at, scale, floor);
      total += block_mass[block];
    });
    return total;
  }

  template <bool kFloor>
  static Mass weigh_block(const float* at, LogitScale scale, float floor) {
    Lanes::Units sums[2] = {Lanes::units(0), Lanes::units(0)};
    for (int i = 0; i < kLogitBlock; i += Lanes::kCount) {
      Lanes::Units low;
      Lanes::Units high;
      Lanes::Floats x = Lanes::load(at + i);
      if constexpr (kFloor)
        x = Lanes::keep(x, Lanes::at_least(x, Lanes::all(floor)), Lanes::all(kNever));
      weights(x, scale, low, high);
      sums[0] = Lanes::add(sums[0], low);
      sums[1] = Lanes::add(sums[1], high);
    }
    return Lanes::sum(Lanes::add(sums[0], sums[1])) - kLogitBlock * kUnitShiftBits;
  }
};
