// Python bindings: the extension module `cutlayer._native`. Tensors are addresses of contiguous float32 memory, which
// Python has checked and keeps alive. The GIL is released around all loops.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/ems.hpp"
#include "common/checksum.hpp"
#include "common/float16.hpp"
#include "common/huge_pages.hpp"
#include "common/parallel.hpp"
#include "sparse/decode.hpp"
#include "sparse/encode.hpp"

namespace nb = nanobind;
using namespace cutlayer;

namespace {

using Address = uintptr_t;

const float* floats(Address a) { return reinterpret_cast<const float*>(a); }
float* floats_out(Address a) { return reinterpret_cast<float*>(a); }

// A new bytes object, with the header and space for the payload. Nobody else has a reference yet, so the payload is
// written in place and the frame never copied.
nb::bytes allocate(nb::bytes header, size_t payload) {
  PyObject* frame = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(header.size() + payload));
  if (!frame) throw nb::python_error();
  // Smaller ones mostly get memory that was used before, whose pages are mapped already.
  if (payload >= size_t(32) << 20) advise_huge_pages(reinterpret_cast<Address>(PyBytes_AsString(frame)), payload);
  std::memcpy(PyBytes_AsString(frame), header.data(), header.size());
  return nb::steal<nb::bytes>(frame);
}

uint8_t* writable(nb::bytes& frame, size_t offset) {
  return reinterpret_cast<uint8_t*>(PyBytes_AsString(frame.ptr())) + offset;
}

// The buffer of any Python object that has a contiguous one; released with this.
class Buffer {
 public:
  explicit Buffer(nb::handle source) {
    if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_SIMPLE)) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const uint8_t* at(size_t offset) const { return static_cast<const uint8_t*>(view_.buf) + offset; }
  size_t size() const { return size_t(view_.len); }

 private:
  Py_buffer view_;
};

nb::bytes seal(nb::bytes frame, size_t from, int threads) {
  uint8_t* data = writable(frame, 0);
  uint32_t crc;
  {
    nb::gil_scoped_release free;
    crc = crc32(data + from, frame.size() - from, threads);
  }
  std::memcpy(data + from - 4, &crc, 4);
  return frame;
}

// Below a megabyte, one thread has copied before another would have woken.
void copy(uint8_t* to, const uint8_t* from, size_t n, int threads) {
  constexpr size_t piece = size_t(1) << 20;
  if (n <= piece) {
    std::memcpy(to, from, n);
    return;
  }
  nb::gil_scoped_release free;
  parallel(threads, (n + piece - 1) / piece, [&](size_t i) {
    std::memcpy(to + i * piece, from + i * piece, std::min(piece, n - i * piece));
  });
}

void put_bytes(nb::bytes frame, size_t offset, nb::handle source, int threads) {
  Buffer data(source);
  if (offset > frame.size() || data.size() > frame.size() - offset) throw nb::value_error("no buffer in the frame");
  copy(writable(frame, offset), data.at(0), data.size(), threads);
}

void get_floats(nb::handle frame, size_t offset, size_t n, Address out, int threads) {
  Buffer data(frame);
  if (offset > data.size() || 4 * n > data.size() - offset) throw nb::value_error("no values in the frame");
  copy(reinterpret_cast<uint8_t*>(out), data.at(offset), 4 * n, threads);
}

// Where the memory of an array begins. Its caller keeps the array alive.
Address address(nb::handle array) { return reinterpret_cast<Address>(Buffer(array).at(0)); }

uint32_t checksum(nb::handle frame, size_t from, int threads) {
  Buffer buffer(frame);
  nb::gil_scoped_release free;
  return crc32(buffer.at(from), buffer.size() - from, threads);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const DataChanged&) {
      const nb::object kind = nb::module_::import_("cutlayer.errors").attr("ChangedError");
      PyErr_SetString(kind.ptr(), "the tensor was changed by another thread while it was encoded; encode a copy");
    }
  });
  m.def("instruction_set", [] { return kernels().name; });
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels* k : available_kernels()) names.push_back(k->name);
    return names;
  });
  m.def("choose_instruction_set", [](const std::string& name) { return choose_kernels(name.c_str()); });
  m.def("force_instruction_set",
        [](std::optional<std::string> name) { return force_kernels(name ? name->c_str() : nullptr); },
        nb::arg().none());
  m.def("address", &address);
  m.def("allocate", &allocate);
  m.def("advise_huge_pages", &advise_huge_pages);
  m.def("put_bytes", &put_bytes);
  m.def("get_floats", &get_floats);
  m.def("seal", &seal);
  m.def("checksum", &checksum);

  nb::class_<Selection>(m, "Selection")
      .def_prop_ro("negative", [](const Selection& s) { return s.negative; })
      .def_prop_ro("largest", [](const Selection& s) { return float_of(s.max_bits); })
      .def_ro("topmin", &Selection::topmin)
      .def_prop_ro("k", [](const Selection& s) { return s.shape.k; });
  nb::class_<Range>(m, "Range")
      .def_ro("lo", &Range::lo)
      .def_ro("hi", &Range::hi)
      .def_prop_ro("largest", [](const Range& r) { return float_of(r.max_bits); });

  m.def("select_top", [](Address x, size_t rows, size_t d, uint64_t k, int threads) {
    nb::gil_scoped_release free;
    return select_top(floats(x), {rows, d, k}, threads);
  });
  m.def("ms_encode", [](Address x, const Selection& top, unsigned bits, bool nearest, bool is_signed, int kind,
                        nb::bytes frame, size_t offset, int threads) {
    uint8_t* out = writable(frame, offset);
    nb::gil_scoped_release free;
    ms_encode(floats(x), top, bits, nearest, is_signed, Values(kind), out, threads);
  });
  m.def("sparse_encode", [](Address x, size_t rows, size_t d, uint64_t k, int pick, double alpha, bool coin,
                            uint64_t seed, bool keys, int kind, float scale, nb::bytes frame, size_t offset,
                            int threads) {
    uint8_t* out = writable(frame, offset);
    nb::gil_scoped_release free;
    return float_of(sparse_encode(floats(x), {rows, d, k},
                                  {Pick(pick), {alpha, coin, seed}, keys, Values(kind), scale}, out, threads));
  });
  m.def("ranges", [](Address x, size_t rows, size_t d, int threads) {
    nb::gil_scoped_release free;
    return ranges(floats(x), rows, d, threads);
  });
  m.def("qu_encode", [](Address x, size_t d, const std::vector<Range>& ranges, unsigned bits, bool stochastic,
                        uint64_t seed, bool own_range, nb::bytes frame, size_t offset, int threads) {
    uint8_t* out = writable(frame, offset);
    nb::gil_scoped_release free;
    qu_encode(floats(x), d, ranges, bits, stochastic, seed, own_range, out, threads);
  });
  m.def("km_histogram", [](Address x, size_t d, float lo, float hi, Address bins) {
    nb::gil_scoped_release free;
    km_histogram(floats(x), d, lo, hi, reinterpret_cast<int64_t*>(bins));
  });
  m.def("km_encode", [](Address x, size_t d, float lo, float hi, nb::bytes cluster, unsigned bits,
                        nb::bytes frame, size_t offset) {
    uint8_t* out = writable(frame, offset);
    const uint8_t* table = reinterpret_cast<const uint8_t*>(cluster.c_str());
    nb::gil_scoped_release free;
    km_encode(floats(x), d, lo, hi, table, bits, out);
  });

  m.def("ms_decode", [](nb::handle frame, size_t offset, size_t rows, size_t d, uint64_t k, unsigned bits,
                        bool is_signed, int kind, Address out, int threads) {
    Buffer in(frame);
    nb::gil_scoped_release free;
    return int(ms_decode(in.at(offset), {rows, d, k}, bits, is_signed, Values(kind), floats_out(out), threads));
  });
  m.def("sparse_decode", [](nb::handle frame, size_t offset, size_t rows, size_t d, uint64_t k, bool keys,
                            int kind, Address out, int threads) {
    Buffer in(frame);
    nb::gil_scoped_release free;
    return int(sparse_decode(in.at(offset), {rows, d, k}, keys, Values(kind), floats_out(out), threads));
  });
  m.def("qu_decode", [](nb::handle frame, size_t offset, size_t rows, size_t d, unsigned bits, bool own_range,
                        float lo, float hi, Address out, int threads) {
    Buffer in(frame);
    const float range[2] = {lo, hi};
    nb::gil_scoped_release free;
    return int(qu_decode(in.at(offset), rows, d, bits, own_range ? nullptr : range, floats_out(out), threads));
  });
  m.def("km_decode", [](nb::handle frame, size_t offset, size_t rows, size_t d, unsigned bits, Address out,
                        int threads) {
    Buffer in(frame);
    nb::gil_scoped_release free;
    return int(km_decode(in.at(offset), rows, d, bits, floats_out(out), threads));
  });
  m.def("check_values", [](nb::handle frame, size_t offset, size_t n, int kind, int threads) {
    Buffer in(frame);
    nb::gil_scoped_release free;
    return int(check_values(in.at(offset), n, Values(kind), threads));
  });
  bind_ems(m);
  // For tests of the generator itself.
  m.def("random_words", [](uint64_t seed, uint32_t stream, uint32_t section, uint64_t first, size_t n) {
    std::vector<uint32_t> out(n);
    kernels().random(seed, stream, section, first, n, out.data());
    return out;
  });
}
