// The header of a section, as bytes.
#include <cstring>

#include "ems/padded_planes.hpp"
#include "ems/section.hpp"

namespace cutlayer {

ContextModel OwnModel::view(unsigned n_levels) const {
  const unsigned level_shift = unsigned(std::max(0, int(bit_length(n_levels)) - 5));
  const unsigned prediction_shift = unsigned(std::max(0, int(bit_length(32 * (n_levels >> level_shift))) - 7));
  return {rows, parents, weights.data(), distance.data(), parent.data(), level_shift, prediction_shift, shared};
}

void OwnTables::number_classes() {
  for (size_t c = 0; c < classes; ++c) {
    const size_t first = size_t(starts[c]), end = c + 1 < classes ? size_t(starts[c + 1]) : kPredictions;
    std::memset(class_of + first, int(c), end - first);
  }
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

std::string head_bytes(const SectionHead& head, bool coded) {
  std::string out;
  out.push_back(char(coded));
  out.push_back(char(head.levels));
  put_varint(out, head.tops);
  put_varint(out, head.low);
  out.push_back(char(head.width));
  const Points& points = head.points;
  if (points.step > 0) {
    out.append(reinterpret_cast<const char*>(&points.step), 4);
    out.push_back(char(points.activities));
    out.append(reinterpret_cast<const char*>(points.offsets.data()), points.offsets.size());
  }
  if (!coded) return out;
  const OwnModel& model = head.model;
  const size_t parents = model.parents;
  const auto row = [&](size_t r, size_t from) {
    out.append(reinterpret_cast<const char*>(model.weights.data()) + r * 5 + from, 5 - from);
    out.append(reinterpret_cast<const char*>(model.distance.data()) + r * parents, parents);
    out.append(reinterpret_cast<const char*>(model.parent.data()) + r * parents, parents);
  };
  out.push_back(char(model.shared ? 2 : model.rows > 1 ? 1 : 0));
  out.push_back(char(parents));
  if (model.shared) {  // taken from the last channel, the only one that is sure to have all parents
    row(model.rows - 1, 1);
    for (size_t r = 0; r < model.rows; ++r) out.push_back(char(model.weights[5 * r]));
  } else {
    for (size_t r = 0; r < model.rows; ++r) row(r, 0);
  }
  const OwnTables& tables = head.tables;
  out.push_back(char(tables.classes));
  for (size_t c = 1; c < tables.classes; ++c) out.push_back(char(tables.starts[c]));
  for (size_t c = 0; c < tables.classes; ++c)
    for (size_t s = 0; s + 1 < tables.symbols; ++s) put_varint(out, uint64_t(tables.frequencies[c * tables.symbols + s]));
  for (uint64_t words : head.words) put_varint(out, words);
  return out;
}

}  // namespace cutlayer
