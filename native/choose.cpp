#include "choose.hpp"

#include <cmath>
#include <cstring>

#include "parallel.hpp"

namespace cutlayer {
namespace {

// How many of k draws fall on top elements. The counts are kept in double, where they are exact.
uint64_t top_draws(const Shape& shape, const Chance& chance, uint64_t first) {
  double top = double(shape.k), others = double(shape.d - shape.k);
  const double a = (1 - chance.alpha) / top, b = others > 0 ? chance.alpha / others : 0;
  uint32_t words[kSpan];
  for (uint64_t j = 0; j < shape.k; j += kSpan) {
    const size_t n = size_t(std::min<uint64_t>(kSpan, shape.k - j));
    kernels().random(chance.seed, 1, first + j, n, words);
    for (size_t i = 0; i < n; ++i) {
      const double u = double(words[i]) * (1.0 / 4294967296.0), left = top * a;
      const bool hit = chance.coin ? u >= chance.alpha : u * (left + others * b) < left;
      if (top > 0 && (hit || others == 0)) top -= 1;
      else others -= 1;
    }
  }
  return shape.k - uint64_t(top);
}

// The elements whose (random word, index) is smallest within a set: collected below a bound that four
// standard deviations put above the expected one, then cut exactly.
struct Pick {
  uint64_t wanted, population;
  bool smallest;
  uint32_t bound;
  std::vector<uint64_t> found;

  Pick(uint64_t wanted, uint64_t population, bool smallest)
      : wanted(wanted), population(population), smallest(smallest) {
    const double p = population ? double(wanted) / double(population) : 0;
    const double share = std::min(1.0, p + (4 * std::sqrt(double(wanted)) + 4) / double(population + 1));
    const uint32_t width = uint32_t(std::min(4294967295.0, share * 4294967296.0));
    bound = smallest ? width : ~width;
  }
  bool enough() const { return found.size() >= wanted; }
  void widen() {
    bound = smallest ? ~0u : 0u;
    found.clear();
  }
  void cut() {
    if (found.size() > wanted) {
      const auto nth = found.begin() + long(wanted);
      if (smallest) std::nth_element(found.begin(), nth, found.end());
      else std::nth_element(found.begin(), nth, found.end(), std::greater<>());
      found.resize(wanted);
    }
  }
};

}  // namespace

void choose_row(const float* x, const Shape& shape, const Chunk* top, const Chance& chance, uint64_t first,
                int threads, uint64_t* keep) {
  const size_t d = shape.d;
  const auto& kernel = kernels();
  if (top)
    parallel(threads, shape.chunks(), [&](size_t c) {
      kernel.top_mask(x + c * kChunk, shape.length(c), top[c].cut, keep + c * kChunk / kBlock);
    });
  const uint64_t hits = top ? top_draws(shape, chance, first) : 0;
  if (hits == shape.k) return;
  // Top elements that were not drawn leave, the others that were come in.
  Pick leave(top ? shape.k - hits : 0, top ? shape.k : 0, false);
  Pick enter(shape.k - hits, top ? d - shape.k : d, true);
  const size_t count = shape.chunks();
  auto collect = [&] {
    std::vector<std::vector<uint64_t>> out(count), in(count);
    parallel(threads, count, [&](size_t c) {
      // One more, as both are written to before one counts.
      uint64_t entering[kSpan + 1], leaving[kSpan + 1];
      const size_t last = std::min(d, (c + 1) * kChunk);
      for (size_t i = c * kChunk; i < last; i += kSpan) {
        const Swaps n = kernel.collect(chance.seed, first, uint32_t(i), keep + i / kBlock, std::min(kSpan, last - i),
                                       enter.bound, leave.wanted > 0, leave.bound, entering, leaving,
                                       x ? x + d + i : nullptr);
        in[c].insert(in[c].end(), entering, entering + n.enter);
        out[c].insert(out[c].end(), leaving, leaving + n.leave);
      }
    });
    for (size_t c = 0; c < count; ++c) {
      enter.found.insert(enter.found.end(), in[c].begin(), in[c].end());
      leave.found.insert(leave.found.end(), out[c].begin(), out[c].end());
    }
  };
  collect();
  if (!enter.enough() || !leave.enough()) {
    enter.widen();
    leave.widen();
    collect();
  }
  enter.cut();
  leave.cut();
  for (uint64_t e : leave.found) keep[uint32_t(e) / kBlock] &= ~(1ull << (uint32_t(e) % kBlock));
  for (uint64_t e : enter.found) keep[uint32_t(e) / kBlock] |= 1ull << (uint32_t(e) % kBlock);
}

}  // namespace cutlayer
