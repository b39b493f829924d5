#include "sparse/topk.hpp"

#include <cmath>
#include <memory>

#include "common/float16.hpp"
#include "sparse/chunks.hpp"

namespace cutlayer {
namespace {

struct Bracket {
  uint32_t lo, hi;
  bool wide;  // more than one element of 64 lies in it
};

uint32_t hash32(uint32_t v) {
  v = (v ^ (v >> 16)) * 0x7feb352du;
  v = (v ^ (v >> 15)) * 0x846ca68bu;
  return v ^ (v >> 16);
}

// The k-th largest of n words between lo and hi, found bit by bit from the top by counting. Without branches to
// mispredict, this is several times faster than a partial sort. After some bits few words are left that can be it.
uint32_t kth_largest(const uint32_t* words, size_t n, uint64_t k, uint32_t lo, uint32_t hi) {
  constexpr int some = 5;
  constexpr size_t slop = 2 * kBlock;
  std::vector<uint32_t> left;
  uint32_t found = 0;
  int bit = 30;
  for (; bit >= 0 && ((lo ^ hi) >> bit) == 0; --bit) found |= hi & (1u << bit);
  for (int step = 0; bit >= 0; --bit, ++step) {
    if (step == some && n > 4 * kBlock && found > 0) {
      left.resize(n + slop);
      const Scan scan = kernels().scan(reinterpret_cast<const float*>(words), n, found - 1, found | ((2u << bit) - 1),
                                       false, left.data(), left.size());
      k -= scan.above;
      n = size_t(scan.collected);
      words = left.data();
    }
    if (kernels().words_ge(words, n, found | (1u << bit)) >= k) found |= 1u << bit;
  }
  return found;
}

// The same for two ranks at once, which share the first bits. The lowest `coarse` bits are left at 0.
void kth_largest(const uint32_t* words, size_t n, const uint64_t (&ranks)[2], int coarse, uint32_t (&found)[2]) {
  found[0] = found[1] = 0;
  for (int bit = 30; bit >= coarse; --bit) {
    const uint32_t more[2] = {found[0] | 1u << bit, found[1] | 1u << bit};
    const uint64_t first = kernels().words_ge(words, n, more[0]);
    const uint64_t second = more[0] == more[1] ? first : kernels().words_ge(words, n, more[1]);
    if (first >= ranks[0]) found[0] = more[0];
    if (second >= ranks[1]) found[1] = more[1];
  }
}

// A random sample of a section's magnitudes. It says between which two the k-th largest very probably lies: some
// standard deviations around its rank in the sample. A miss costs time, never correctness.
class MagnitudeSample {
 public:
  MagnitudeSample(const float* x, size_t d) : d_(d), words_(std::min(d, std::clamp<size_t>(d / 2048, 512, 65536))) {
    const size_t stride = d / words_.size();
    for (size_t j = 0; j < words_.size(); ++j) {
      const size_t within = size_t((uint64_t(hash32(uint32_t(j))) * stride) >> 32);
      words_[j] = bits_of(x[j * stride + within]) & 0x7fffffffu;
    }
  }

  Bracket bracket(uint64_t k, double deviations) const {
    const double size = double(words_.size()), share = double(k) / double(d_), rank = share * size;
    const double slack = words_.size() == d_ ? 0 : deviations * std::sqrt(rank * (1 - share)) + 1;
    // Fewer bits take fewer steps. The ends are rounded outwards, which makes few more candidates.
    const int coarse = words_.size() > 4096 ? 12 : 16;
    const auto whole = [&](double r) { return uint64_t(std::clamp(r, 1.0, size)); };  // a rank, 1 for the largest
    uint32_t ends[2];
    kth_largest(words_.data(), words_.size(), {whole(std::ceil(rank + slack)), whole(rank - slack)}, coarse, ends);
    const uint32_t lo = rank + slack > size ? 0 : ends[0];
    const uint32_t hi = rank - slack < 1 && words_.size() < d_ ? kMaxFinite : ends[1] | ((1u << coarse) - 1);
    return {lo, std::max(lo, hi), 2 * slack > size / 64};
  }

 private:
  size_t d_;
  std::vector<uint32_t> words_;
};

// The k-th largest magnitude by radix selection with three histograms: for data that miss the bracket.
uint32_t radix_select(const float* x, size_t d, uint64_t k) {
  uint32_t prefix = 0, known = 0;
  for (unsigned shift : {20u, 10u, 0u}) {
    const uint32_t field = shift == 20 ? 2047 : 1023;
    uint64_t bins[2048] = {};
    for (size_t i = 0; i < d; ++i) {
      const uint32_t a = bits_of(x[i]) & 0x7fffffffu;
      bins[(a >> shift) & field] += (a & known) == prefix;
    }
    uint32_t bin = field;
    for (; bin && bins[bin] < k; --bin) k -= bins[bin];
    prefix |= bin << shift;
    known |= field << shift;
  }
  return prefix;
}

}  // namespace

RowTop select_row(const float* x, const Shape& shape, int threads, Chunk* chunks) {
  const size_t d = shape.d, count = shape.chunks();
  const uint64_t k = shape.k;
  const MagnitudeSample sample(x, d);
  const auto& kernel = kernels();

  // A buffer for candidates of each chunk. Not cleared: pages without candidates are never touched.
  constexpr size_t share = kChunk / 8;
  const size_t capacity_each = std::min(share, d);
  const std::unique_ptr<uint32_t[]> buffer(new uint32_t[count * capacity_each]);
  std::vector<Scan> scans(count);
  RowTop found{0, 0, false};
  uint64_t above = 0, between = 0;
  bool complete = true;
  Bracket bracket{};
  auto scan = [&](double deviations) {  // whether the bracket has the k-th largest
    bracket = sample.bracket(k, deviations);
    backwards(threads, count, [&](size_t c) {
      scans[c] = kernel.scan(x + c * kChunk, shape.length(c), bracket.lo, bracket.hi, bracket.wide,
                             buffer.get() + c * capacity_each, capacity_each);
    });
    above = between = 0;
    complete = true;
    for (const Scan& s : scans) {
      above += s.above;
      between += s.collected;
      complete &= s.collected <= capacity_each;
      found.max_bits = std::max(found.max_bits, s.max_bits);
      found.negative |= s.negative;
    }
    return above < k && k <= above + between;
  };
  // A small section is in the cache: rather a second scan now and then than many candidates always. If the lower end
  // is 0 already, the threshold is 0.
  const double deviations = d < 4 * kChunk ? 2 : 4;
  if (!scan(deviations) && found.max_bits <= kMaxFinite && (bracket.lo > 0 || above >= k)) scan(3 * deviations);
  if (found.max_bits > kMaxFinite) return found;

  bool counted = complete;  // whether the candidates give the counts of each chunk
  if (complete && above < k && k <= above + between) {
    std::vector<uint32_t> all;
    const uint32_t* words = buffer.get();
    if (count > 1) {
      all.reserve(size_t(between));
      for (size_t c = 0; c < count; ++c)
        all.insert(all.end(), buffer.get() + c * capacity_each, buffer.get() + c * capacity_each + scans[c].collected);
      words = all.data();
    }
    found.t = kth_largest(words, size_t(between), k - above, bracket.lo, bracket.hi);
  } else {
    counted = false;
    found.t = complete && above + between < k ? bracket.lo : radix_select(x, d, k);
  }

  std::vector<uint64_t> more(count), equal(count);
  auto recount = [&] {
    parallel(threads, count, [&](size_t c) {
      const float* at = x + c * kChunk;
      more[c] = kernel.count_ge(at, shape.length(c), found.t + 1);
      equal[c] = kernel.count_ge(at, shape.length(c), found.t) - more[c];
    });
    uint64_t gt = 0, eq = 0;
    for (size_t c = 0; c < count; ++c) gt += more[c], eq += equal[c];
    return gt < k && k <= gt + eq;
  };
  if (counted) {
    for (size_t c = 0; c < count; ++c) {
      const uint32_t* candidates = buffer.get() + c * capacity_each;
      const uint64_t above_t = kernel.words_ge(candidates, size_t(scans[c].collected), found.t + 1);
      more[c] = scans[c].above + above_t;
      equal[c] = kernel.words_ge(candidates, size_t(scans[c].collected), found.t) - above_t;
    }
  } else if (!recount()) {
    // The bracket's lower end was assumed to be the threshold, and is not.
    found.t = radix_select(x, d, k);
    recount();
  }

  uint64_t total = 0, before = 0;
  for (uint64_t m : more) total += m;
  uint64_t ties = k - total;  // the first in order are top values
  for (size_t c = 0; c < count; ++c) {
    const uint64_t keep = std::min(ties, equal[c]);
    chunks[c] = {{found.t, equal[c], keep}, before, more[c] + keep};
    before += more[c] + keep;
    ties -= keep;
  }
  if (total > k || before != k) throw DataChanged();
  return found;
}

Selection select_top(const float* x, Shape shape, int threads) {
  Selection result{shape, {}, {}, 0, false};
  result.chunks.resize(shape.rows * shape.chunks());
  result.topmin.resize(shape.rows);
  std::vector<RowTop> found(shape.rows);
  const bool by_row = shape.rows > 1;
  backwards(by_row ? threads : 1, shape.rows, [&](size_t r) {
    found[r] = select_row(x + r * shape.d, shape, by_row ? 1 : threads, result.chunks.data() + r * shape.chunks());
  });
  for (size_t r = 0; r < shape.rows; ++r) {
    result.topmin[r] = float_of(found[r].t);
    result.max_bits = std::max(result.max_bits, found[r].max_bits);
    result.negative |= found[r].negative;
  }
  return result;
}

}  // namespace cutlayer
