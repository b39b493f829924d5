"""The parts of the codec `ems`: quantizer, context model, frequency tables, DCT, rate control, byte layout.

It works on one section at a time and leaves all loops over elements to `codecs.kernels`. It must not know
frame headers, spec strings, or which of the two implementations (native or reference) runs.
"""
