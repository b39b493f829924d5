#include "sparse/sample.hpp"

#include <cmath>

namespace cutlayer {
namespace {

// The random streams of a section (FORMAT.md, "Randomness").
enum Stream : uint32_t { kHits = 1, kTop = 2, kOthers = 3 };

// How many of k draws without replacement fall on top elements. Counts are exact in double.
class TopDraws {
 public:
  TopDraws(const Shape& shape, const Sampling& sampling)
      : top_(double(shape.k)), others_(double(shape.d - shape.k)), a_((1 - sampling.alpha) / top_),
        b_(others_ > 0 ? sampling.alpha / others_ : 0), alpha_(sampling.alpha), coin_(sampling.coin) {}

  // The next n <= 64 draws; there are 64 words.
  void add(const uint32_t* words, size_t n) {
    if (!add_at_once(words, n)) add_one_by_one(words, n);
  }
  double left() const { return top_; }

 private:
  // The probability of a hit hardly changes within 64 draws. So most words are hits or misses whatever came before
  // them; only those in between need the state at their turn.
  bool add_at_once(const uint32_t* words, size_t n) {
    const double draws = double(n), margin = 1e-9;  // far above all rounding errors
    if (top_ <= draws || others_ <= draws) return false;
    if (coin_) {
      const double first = std::ceil(alpha_ * kWords);
      return take(first < kWords ? n - kernels().words_ge(words, n, uint32_t(first)) : n, n);
    }
    const double least = share(top_ - draws, others_) - margin, most = share(top_, others_ - draws) + margin;
    if (!(least > margin && most < 1 - margin)) return false;
    const Bits2 above = kernels().words_above(words, uint32_t(least * kWords) - 1, uint32_t(most * kWords));
    const uint64_t valid = n < 64 ? (1ull << n) - 1 : ~0ull;
    uint64_t misses = above.b & valid;
    for (uint64_t unsure = above.a & valid & ~misses; unsure; unsure &= unsure - 1) {
      const uint64_t bit = unsure & -unsure;
      const double missed = count(misses & (bit - 1)), drawn = count(bit - 1);
      if (!hit(words[size_t(drawn)], top_ - (drawn - missed), others_ - missed)) misses |= bit;
    }
    return take(count(misses), draws);
  }

  bool take(double misses, double draws) {
    top_ -= draws - misses;
    others_ -= misses;
    return true;
  }

  void add_one_by_one(const uint32_t* words, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      if (top_ > 0 && (others_ == 0 || hit(words[i], top_, others_))) top_ -= 1;
      else others_ -= 1;
    }
  }

  bool hit(uint32_t word, double top, double others) const {
    const double u = double(word) / kWords, left = top * a_;
    return coin_ ? u >= alpha_ : u * (left + others * b_) < left;
  }
  double share(double top, double others) const { return top * a_ / (top * a_ + others * b_); }
  static double count(uint64_t bits) { return double(__builtin_popcountll(bits)); }

  static constexpr double kWords = 4294967296.0;
  double top_, others_;
  const double a_, b_, alpha_;
  const bool coin_;
};

uint64_t top_draws(const Shape& shape, const Sampling& sampling, uint32_t section) {
  TopDraws draws(shape, sampling);
  uint32_t words[kSpan];
  for (uint64_t j = 0; j < shape.k; j += kSpan) {
    const size_t n = size_t(std::min<uint64_t>(kSpan, shape.k - j)), whole = (n + kBlock - 1) / kBlock * kBlock;
    kernels().random(sampling.seed, kHits, section, j, whole, words);
    for (size_t i = 0; i < n; i += kBlock) draws.add(words + i, std::min(kBlock, n - i));
  }
  return shape.k - uint64_t(draws.left());
}

// A random subset of m of n positions as a bit set, with one spare word behind it. Positions are drawn with rejection
// of those drawn before. If m > n / 2, the complement is drawn.
std::vector<uint64_t> draw(const Sampling& sampling, Stream stream, uint32_t section, uint64_t m, uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  std::vector<uint64_t> set(size_t(n / 64) + 2);
  const bool invert = m > n - m;
  uint32_t words[kSpan];
  uint64_t left = invert ? n - m : m;
  for (uint64_t first = 0; left;) {
    const size_t count = size_t(std::min<uint64_t>(kSpan, 2 * left));
    kernels().random(sampling.seed, stream, section, first, count, words);
    first += count;
    for (size_t i = 0; i < count; i += 2) {
      const uint64_t word = words[i] | uint64_t(words[i + 1]) << 32;
      const uint64_t place = uint64_t((Wide(word) * n) >> 64);
      const uint64_t old = set[place / 64], bit = 1ull << (place % 64);
      set[place / 64] = old | bit;
      left -= (old & bit) == 0;
    }
  }
  if (invert)
    for (uint64_t& word : set) word = ~word;
  return set;
}

}  // namespace

Sample sample_top(const Shape& shape, const Sampling& sampling, uint32_t section) {
  const uint64_t hits = top_draws(shape, sampling, section);
  return {draw(sampling, kTop, section, hits, shape.k),
          draw(sampling, kOthers, section, shape.k - hits, shape.d - shape.k),
          {}};
}

Sample sample_all(const Shape& shape, const Sampling& sampling, uint32_t section) {
  Sample sample{{}, draw(sampling, kOthers, section, shape.k, shape.d), {}};
  if (shape.d % 64) sample.others[shape.d / 64] &= (1ull << (shape.d % 64)) - 1;
  return sample;
}

uint64_t count_between(const uint64_t* set, uint64_t first, uint64_t end) {
  auto before = [&](uint64_t at) {  // bits before `at` in its word
    return at % 64 ? uint64_t(__builtin_popcountll(set[at / 64] << (64 - at % 64))) : 0;
  };
  uint64_t count = 0;
  for (uint64_t w = first / 64; w < end / 64; ++w) count += uint64_t(__builtin_popcountll(set[w]));
  return count + before(end) - before(first);
}

}  // namespace cutlayer
