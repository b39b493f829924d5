// Python bindings of `ems`. As in module.cpp, Python has checked the memory behind all addresses.
#include "bindings/ems.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ems/dct.hpp"
#include "common/parallel.hpp"
#include "ems/dct_section.hpp"

namespace nb = nanobind;

namespace cutlayer {
namespace {

using Address = uintptr_t;
using Sizes = std::vector<size_t>;

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

SectionShape shape_of(const Sizes& s) { return {s.at(0), s.at(1), s.at(2), s.at(3), s.at(4)}; }

// `s`: rows, parents, level_shift, prediction_shift.
ContextModel model_of(const Sizes& s, Address weights, Address distance, Address parent) {
  return {s.at(0), s.at(1), at<int8_t>(weights), at<uint8_t>(distance), at<int8_t>(parent), unsigned(s.at(2)),
          unsigned(s.at(3))};
}

nb::bytes bytes_of(const std::string& s) { return nb::bytes(s.data(), s.size()); }

// `s`: a shape, and the first row and the end of the counted ones.
Trial trial_of(const Sizes& s, Address where) {
  return {shape_of(s), {s.at(5), s.at(6)}, at<int64_t>(where)};
}

// The sections of some rows and the largest number of levels; nothing if the target cannot be met.
std::optional<std::pair<nb::bytes, unsigned>> encode_sections(Address x, const Selection& top, size_t first,
                                                              size_t end, const Sizes& shape, const Sizes& trial,
                                                              Address where, int kind, bool is_signed, Address cost_of,
                                                              const Target& target, int threads) {
  const size_t rows = end - first, d = top.shape.d;
  std::vector<Encoded> found(rows);
  std::string all;
  unsigned most = 1;
  {
    nb::gil_scoped_release free;
    parallel(rows > 1 ? threads_for(rows * d, threads) : 1, rows, [&](size_t r) {
      const SectionTask task{at<float>(x) + (first + r) * d, shape_of(shape),
                             trial_of(trial, where), Values(kind), is_signed, at<int64_t>(cost_of),
                             rows > 1 ? 1 : threads};
      found[r] = encode_section(task, top, first + r, target);
    });
    for (const Encoded& section : found) {
      if (!section.good) return {};
      all += section.bytes;
      most = std::max(most, section.levels);
    }
  }
  return std::make_pair(bytes_of(all), most);
}

}  // namespace

void bind_ems(nb::module_& m) {
  m.def("ems_encode_sections", [](Address x, const Selection& top, size_t first, size_t end, const Sizes& shape,
                                  const Sizes& trial, Address where, int kind, bool is_signed, Address cost_of,
                                  int64_t budget, double error, double step, unsigned levels, int rounding,
                                  int threads) {
    return encode_sections(x, top, first, end, shape, trial, where, kind, is_signed, cost_of,
                           {budget, error, step, levels, rounding}, threads);
  });
  m.def("ems_encode_dct", [](Address x, const Sizes& shape, const Sizes& trial, Address where, int kind, Address cost_of,
                             int64_t budget, double error,
                             int threads) -> std::optional<std::pair<nb::bytes, unsigned>> {
    Encoded found;
    {
      nb::gil_scoped_release free;
      const SectionTask task{at<float>(x), shape_of(shape), trial_of(trial, where), Values(kind), false,
                             at<int64_t>(cost_of), threads};
      found = encode_dct_section(task, budget, error);
    }
    if (!found.good) return {};
    return std::make_pair(bytes_of(found.bytes), found.levels);
  });
  // Each payload: address, bytes, rows, largest number of levels, rounding, values, signs, address of the result; then the
  // shape of a section.
  m.def("ems_decode_sections", [](const std::vector<Sizes>& given, int threads) {
    std::vector<Payload> payloads;
    for (const Sizes& p : given)
      payloads.push_back({at<uint8_t>(p.at(0)), p.at(1), p.at(2),
                          {shape_of(Sizes(p.begin() + 8, p.end())), unsigned(p.at(3)), int(p.at(4)),
                           Values(int(p.at(5))), p.at(6) != 0},
                          at<float>(p.at(7))});
    nb::gil_scoped_release free;
    return decode_sections(payloads, threads);
  });
  m.def("ems_quantize",
        [](Address x, size_t d, float scale, unsigned n_levels, float mark_from, Address out, int threads) {
          nb::gil_scoped_release free;
          ems_quantize(at<float>(x), d, scale, n_levels, mark_from, at<uint8_t>(out), threads);
        });
  m.def("ems_quantize_stochastically", [](Address x, size_t d, float scale, unsigned n_levels, uint64_t seed,
                                          uint32_t stream, uint32_t section, Address out, int threads) {
    nb::gil_scoped_release free;
    ems_quantize_stochastically(at<float>(x), d, scale, n_levels, {seed, stream, section}, at<uint8_t>(out), threads);
  });
  m.def("ems_stochastic_tops", [](Address x, Address levels, size_t d, float scale, unsigned n_levels, uint64_t seed,
                                  uint32_t stream, uint32_t section) {
    std::vector<int64_t> found;
    {
      nb::gil_scoped_release free;
      found = ems_stochastic_tops(at<float>(x), at<uint8_t>(levels), d, scale, n_levels, {seed, stream, section});
    }
    return bytes_of(std::string(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(int64_t)));
  });
  m.def("ems_fit_weights", [](Address levels, const Sizes& shape, const Sizes& fit, size_t parents, Address weights,
                              Address distance, Address parent, int threads) {
    nb::gil_scoped_release free;
    const FitSample how{{fit.at(0), fit.at(1)}, fit.at(2), fit.at(3), fit.at(4), unsigned(fit.at(5)), fit.at(6) != 0};
    ems_fit_weights(at<uint8_t>(levels), shape_of(shape), how, parents, at<int8_t>(weights), at<uint8_t>(distance),
                    at<int8_t>(parent), threads);
  });
  m.def("ems_energy", [](Address x, size_t d, int threads) {
    nb::gil_scoped_release free;
    return ems_energy(at<float>(x), d, threads);
  });
  m.def("ems_quantize_evenly",
        [](Address x, size_t d, double topmin, unsigned levels, bool nearest, Address out, int threads) {
          nb::gil_scoped_release free;
          ems_quantize_evenly(at<float>(x), d, topmin, levels, nearest, at<uint8_t>(out), threads);
        });
  m.def("ems_top_values", [](Address x, const Selection& top, size_t row, int kind, Address out, Address where,
                             int threads) {
    nb::gil_scoped_release free;
    ems_top_values(at<float>(x), top, row, Values(kind), at<int64_t>(out), at<int64_t>(where), threads);
  });
  m.def("ems_contexts", [](Address levels, const Sizes& shape, const Sizes& rows, const Sizes& model, Address weights,
                           Address distance, Address parent, unsigned n_levels, Address out, Address histogram,
                           int threads) {
    nb::gil_scoped_release free;
    ems_contexts(at<uint8_t>(levels), shape_of(shape), {rows.at(0), rows.at(1)},
                 model_of(model, weights, distance, parent), n_levels, at<uint8_t>(out), at<int64_t>(histogram),
                 threads);
  });
  m.def("ems_level_sums", [](Address x, Address levels, const Sizes& shape, const Sizes& rows, float scale,
                             unsigned n_levels, size_t activities, Address out, Address squares, int threads) {
    nb::gil_scoped_release free;
    ems_level_sums(at<float>(x), at<uint8_t>(levels), shape_of(shape), {rows.at(0), rows.at(1)}, scale, n_levels,
                   activities, at<int64_t>(out), at<int64_t>(squares), threads);
  });
  m.def("ems_squared_error", [](Address x, Address levels, const Sizes& shape, float scale, unsigned n_levels,
                                size_t activities, Address table, int threads) {
    nb::gil_scoped_release free;
    return ems_squared_error(at<float>(x), at<uint8_t>(levels), shape_of(shape), scale, n_levels, activities,
                             at<int64_t>(table), threads);
  });
  m.def("ems_gather_rows", [](Address elements, size_t size, const Sizes& shape, Address where, size_t strips,
                              size_t rows, Address out, int threads) {
    nb::gil_scoped_release free;
    ems_gather_rows(at<uint8_t>(elements), size, shape_of(shape), at<int64_t>(where), strips, rows, at<uint8_t>(out),
                    threads);
  });
  m.def("ems_frequency_tables", [](Address histogram, size_t symbols, size_t max_classes, size_t min_elements,
                                   Address cost_of, Address starts, Address frequencies) {
    int64_t cost = 0;
    const size_t classes = ems_frequency_tables(at<int64_t>(histogram), symbols, max_classes, min_elements,
                                                at<int64_t>(cost_of), at<int64_t>(starts), at<int64_t>(frequencies),
                                                cost);
    return std::make_pair(classes, cost);
  });
  m.def("ems_rans_encode", [](Address levels, Address contexts, const Sizes& shape, size_t classes, size_t symbols,
                              Address class_of, Address frequencies, int threads) {
    std::vector<std::string> blocks;
    {
      nb::gil_scoped_release free;
      blocks = ems_rans_encode(at<uint8_t>(levels), at<uint8_t>(contexts), shape_of(shape),
                               {classes, symbols, at<uint8_t>(class_of), at<int64_t>(frequencies)}, threads);
    }
    nb::list result;
    for (const auto& block : blocks) result.append(bytes_of(block));
    return result;
  });
  m.def("ems_rans_decode", [](Address in, const std::vector<uint64_t>& words, const Sizes& shape, const Sizes& model,
                              Address weights, Address distance, Address parent, unsigned n_levels, size_t classes,
                              Address class_of, Address frequencies, Address out, int threads) {
    nb::gil_scoped_release free;
    return ems_rans_decode(at<uint8_t>(in), words, shape_of(shape), model_of(model, weights, distance, parent),
                           {classes, n_levels + 1, at<uint8_t>(class_of), at<int64_t>(frequencies)}, at<uint8_t>(out),
                           threads);
  });
  m.def("ems_pack_bits", [](Address codes, size_t n, unsigned width) {
    return bytes_of(ems_pack_bits(at<int64_t>(codes), n, width));
  });
  m.def("ems_unpack_bits", [](Address in, size_t n, unsigned width, Address out) {
    return ems_unpack_bits(at<uint8_t>(in), n, width, at<int64_t>(out));
  });
  m.def("ems_pack_signs", [](Address x, Address levels, size_t d, unsigned mark) {
    return bytes_of(ems_pack_signs(at<float>(x), at<uint8_t>(levels), d, uint8_t(mark)));
  });
  m.def("ems_sample_offsets", [](Address levels, const Sizes& shape, unsigned n_levels, bool is_signed, Address tops,
                                 Address signs, int threads) {
    nb::gil_scoped_release free;
    ems_sample_offsets(at<uint8_t>(levels), shape_of(shape), n_levels, is_signed, at<int64_t>(tops),
                       at<int64_t>(signs), threads);
  });
  m.def("ems_dequantize", [](Address levels, const Sizes& shape, Address table, size_t activities, unsigned n_levels,
                             Address tops, Address tops_at, Address signs, Address signs_at, Address out, int threads) {
    nb::gil_scoped_release free;
    ems_dequantize(at<uint8_t>(levels), shape_of(shape), at<float>(table), activities, n_levels, at<float>(tops),
                   at<int64_t>(tops_at), at<uint8_t>(signs), at<int64_t>(signs_at), at<float>(out), threads);
  });
  m.def("dct_forward", [](Address x, const Sizes& s, Address matrix, Address y, int threads) {
    nb::gil_scoped_release free;
    dct_forward(at<float>(x), {s.at(0), s.at(1), s.at(2), s.at(3)}, at<float>(matrix), at<float>(y), threads);
  });
  m.def("dct_inverse",
        [](Address y, const Sizes& s, Address matrix, float lowest, float highest, Address x, int threads) {
          nb::gil_scoped_release free;
          dct_inverse(at<float>(y), {s.at(0), s.at(1), s.at(2), s.at(3)}, at<float>(matrix), lowest, highest,
                      at<float>(x), threads);
        });
}

}  // namespace cutlayer
