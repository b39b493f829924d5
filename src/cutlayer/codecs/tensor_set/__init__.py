"""What a cut through several tensors needs beside codecs: integers as frames, and frames under names."""
