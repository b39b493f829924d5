#pragma once
#include <nanobind/nanobind.h>

namespace cutlayer {
void bind_ems(nanobind::module_& m);
}
