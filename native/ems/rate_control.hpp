// Rate control: finds the quantizer step that meets a byte budget or an error bound (entropy/rate_control.py, operation
// by operation).
#pragma once
#include "ems/section_writer.hpp"

namespace cutlayer {

// The section of least error in at most `budget` bytes; if none is found, the smallest section.
Encoded within_bytes(SectionWriter& writer, int64_t budget);
// The smallest section whose squared error is at most `bound`; not good if even the most levels exceed it.
Encoded within_error(SectionWriter& writer, double bound);

}  // namespace cutlayer
