// A section of `ems` encoded and decoded in one call: the parts of its header, as values that own their memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/huge_pages.hpp"
#include "ems/ems.hpp"

namespace cutlayer {

constexpr unsigned kMaxLevels = 127;
constexpr size_t kActivities = 16;
constexpr size_t kThreadedElements = size_t(1) << 16;  // with fewer, waking a thread takes longer than the work
constexpr size_t kThreadedCheap = size_t(1) << 17;     // the same for loops with little work an element

inline int threads_for(size_t d, int threads, size_t enough = kThreadedElements) { return d >= enough ? threads : 1; }

// Memory that is not cleared. Large ones are backed by huge pages.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t n) : size_(n), memory_(new T[n]) {
    if (n * sizeof(T) >= size_t(1) << 22) advise_huge_pages(reinterpret_cast<uintptr_t>(memory_.get()), n * sizeof(T));
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  // At least n elements; what was there is lost.
  T* at_least(size_t n) {
    if (n > size_) *this = Buffer(n);
    return data();
  }

 private:
  size_t size_ = 0;
  std::unique_ptr<T[]> memory_;
};

// A context model: see entropy/context_model.py.
struct OwnModel {
  size_t rows = 1, parents = 0;
  bool shared = false;
  std::vector<int8_t> weights;
  std::vector<uint8_t> distance;
  std::vector<int8_t> parent;
  ContextModel view(unsigned n_levels) const;
};

struct OwnTables {
  size_t classes = 0, symbols = 0;
  int64_t starts[kPredictions];
  std::vector<int64_t> frequencies;
  uint8_t class_of[kPredictions];
  void number_classes();  // class_of, from the starts
  FrequencyTables view() const { return {classes, symbols, class_of, frequencies.data()}; }
};

// What levels decode to. `step` 0: levels are equal parts of the smallest top value, as in `ms`.
struct Points {
  float step = 0;
  size_t activities = 1;
  std::vector<int8_t> offsets;  // activities x levels
};

struct SectionHead {
  unsigned levels = 0;
  uint64_t tops = 0, low = 0;
  unsigned width = 0;
  Points points;
  bool coded = false;
  OwnModel model;
  OwnTables tables;
  std::vector<uint64_t> words;
};

// Rows of a section on which rate control tries steps: see entropy/trial_rows.py. `where` null: all rows.
struct Trial {
  SectionShape shape;
  Rows rows;
  const int64_t* where;
  size_t counted() const { return shape.d / shape.height * (rows.last - rows.first); }
};

// What a section must meet. Exactly one of the first four is set.
struct Target {
  int64_t budget;  // bytes; -1 for none
  double error;    // relative squared error
  double step;     // in multiples of the root mean square
  unsigned levels;
  int rounding;  // 0 floor, 1 nearest, 2 mean
};

// All sections have the same shape.
struct SectionTask {
  const float* x;
  SectionShape shape;
  Trial trial;
  Values values;
  bool is_signed;
  const int64_t* cost_of;
  int threads;
};

struct Encoded {
  std::string bytes;
  unsigned levels = 0;
  bool good = false;  // false: the target cannot be met
};

void put_varint(std::string& out, uint64_t value);
// The bytes of a header (FORMAT.md, "ems"), and of one whose mask is stored.
std::string head_bytes(const SectionHead& head, bool coded);

// The section of one row, by the rules of codecs/ems.py and entropy/rate_control.py.
Encoded encode_section(const SectionTask& task, const Selection& top, size_t row, const Target& target);

// How the sections of a frame are read. `max_levels` and `rounding` stand in the frame's header.
struct Reading {
  SectionShape shape;
  unsigned max_levels;
  int rounding;
  Values values;
  bool is_signed;
};
// The payload of a frame, and where its elements go: `rows` sections.
struct Payload {
  const uint8_t* bytes;
  size_t size, rows;
  Reading how;
  float* out;
};
// Decodes the sections of one or many payloads, in parallel. False if a payload is malformed or has sections of tokens;
// then nothing was written.
bool decode_sections(const std::vector<Payload>& payloads, int threads);

}  // namespace cutlayer
