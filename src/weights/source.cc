#include "weights/source.h"

#include <algorithm>

#include "base/random.h"

namespace pelton::weights {

void Source::update(const Have& have, int64_t model_bytes, int64_t now_ns) {
  kind = Kind::kNode;
  poll_failures = 0;
  if (id.empty()) grew_ns = now_ns;
  id = have.id;
  coming = have.coming;
  if (origin) return;
  for (size_t i = 0; i < there.size(); ++i) {
    const bool has = have.there[i] && !passed_over[i];
    if (has && !there[i]) offers.push_back(static_cast<int>(i));
    there[i] = has;
  }
  const auto count = static_cast<size_t>(std::count(have.there.begin(), have.there.end(), true));
  if (count > there_count) grew_ns = now_ns;
  there_count = count;
  // Twice the model is more than anybody needs: who says so says anything.
  constexpr int64_t kAdvance = int64_t{64} << 10;
  if (have.received < said + kAdvance || have.received / 2 > model_bytes) return;
  said = have.received;
  said_ns = grew_ns = now_ns;
}

void Source::offer_all() {
  kind = Kind::kFiles;
  if (origin) return;
  there.assign(there.size(), true);
  there_count = there.size();
  for (size_t i = 0; i < there.size(); ++i) offers.push_back(static_cast<int>(i));
}

uint64_t claim(uint64_t chunk_bits, const std::string& id) {
  return base::mix64(chunk_bits ^ base::mix64(base::fnv1a64(id)));
}

}  // namespace pelton::weights
