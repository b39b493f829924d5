"""Every error that cutlayer raises on purpose.

::

    CutlayerError
    ├── SpecError                 a codec spec string or parameter is wrong
    │   ├── UnknownCodecError       no codec of that name
    │   └── ParameterError          unknown or impossible parameter
    ├── InputError                a tensor cannot be encoded, or `out=` cannot take the result
    │   ├── EmptyTensorError        it has no elements
    │   ├── DtypeError              it is not float16, bfloat16, float32 or float64
    │   ├── NonFiniteError          it holds NaN or infinity
    │   ├── RangeError              a value does not fit the stored dtype
    │   ├── TooLargeError           it has more elements than a frame can address
    │   ├── ChangedError            another thread wrote to it while it was encoded
    │   └── OutputError             `out=` has the wrong shape, dtype or layout
    ├── FrameError                bytes are not a frame that can be decoded
    │   ├── NotAFrameError          they do not start with the magic number
    │   ├── VersionError            the format is newer than this library
    │   ├── TruncatedFrameError     they end too early
    │   ├── TrailingBytesError      they go on after the frame's end
    │   ├── ChecksumError           they were changed on the way
    │   ├── HeaderError             a header field has a value that the format does not allow
    │   ├── LimitError              the frame claims more elements than the caller allows
    │   └── PayloadError            the payload contradicts the header
    ├── CutError                  a model cannot be cut there
    ├── ModelError                a model is unknown, or cannot be imported or built
    ├── DataError                 a data set is missing, damaged or does not fit
    ├── TaskError                 a task is unknown, or does not fit the data or the model
    ├── LinkError                 a link (`100mbit,10ms`) is written wrongly
    ├── RecordError               a run's records are damaged
    ├── CheckpointError           a checkpoint is damaged, of another run, or cannot be written
    ├── ConfigError               a run's configuration is wrong, one line a problem
    ├── MessageError              a message between client and server is malformed or out of place
    │   └── AbsentError             there is none: the client is not there any more
    ├── NetworkError              a peer cannot be reached, or an address cannot be listened on
    │   ├── RefusedError            the other side says no, and why
    │   │   ├── NotNowError           it may say yes to the same later
    │   │   └── MovedError            it says where else to ask
    │   ├── UnreachableError        nobody answers at an address, or it cannot be listened on
    │   ├── CredentialError         a certificate, key or token is missing, damaged, expired or not accepted
    │   ├── RollbackError           the run has to go on from its last checkpoint
    │   └── RankLostError           another rank of the server is gone; torchrun starts them all again
    ├── DivergedError             training met NaN or infinity and stopped
    ├── RunError                  one of several runs failed, in a process of its own
    └── FileError                 a file is missing, unreadable, of the wrong kind, or in the way
"""


class CutlayerError(Exception):
    """Base of all errors that cutlayer raises on purpose."""


class SpecError(CutlayerError, ValueError):
    """A codec spec string or a codec parameter is wrong."""


class UnknownCodecError(SpecError):
    """No built-in or installed codec has that name."""


class ParameterError(SpecError):
    """A codec has no such parameter, or the value is outside what it allows."""


class InputError(CutlayerError, ValueError):
    """A tensor cannot be encoded, or `out=` cannot take the decoded one."""


class EmptyTensorError(InputError):
    """The tensor has no elements."""


class DtypeError(InputError):
    """The tensor is not of a floating-point type that frames carry."""


class NonFiniteError(InputError):
    """The tensor holds NaN or infinity."""


class RangeError(InputError):
    """A value does not fit the type in which it would travel."""


class TooLargeError(InputError):
    """The tensor has more elements than a frame can address."""


class ChangedError(InputError):
    """Another thread wrote to the tensor while it was encoded."""


class OutputError(InputError):
    """`out=` cannot take the decoded tensor."""


class FrameError(CutlayerError, ValueError):
    """The bytes are not a frame that can be decoded."""


class NotAFrameError(FrameError):
    """The bytes do not start with the magic number."""


class VersionError(FrameError):
    """The frame is of a format version that this library does not read."""


class TruncatedFrameError(FrameError):
    """The bytes end before the frame does."""


class TrailingBytesError(FrameError):
    """The bytes go on after the end of the frame."""


class ChecksumError(FrameError):
    """The bytes were changed after the frame was sealed."""


class HeaderError(FrameError):
    """A header field holds a value that the format does not allow."""


class LimitError(FrameError):
    """The frame claims more elements than the caller allows."""


class PayloadError(FrameError):
    """The payload contradicts the header or itself."""


class CutError(CutlayerError, ValueError):
    """The model cannot be cut where it was asked."""


class ModelError(CutlayerError, ValueError):
    """A model is unknown, or cannot be imported or built as asked."""


class DataError(CutlayerError, ValueError):
    """A data set is missing, damaged, or does not fit the run."""


class TaskError(CutlayerError, ValueError):
    """A task is unknown, cannot be imported, or does not fit the data or the model's outputs."""


class FileError(CutlayerError, OSError):
    """A file is missing, unreadable, of the wrong kind, or in the way."""


class LinkError(CutlayerError, ValueError):
    """A link, such as `100mbit,10ms`, is written wrongly."""


class RecordError(CutlayerError, ValueError):
    """The records of a run are damaged."""


class CheckpointError(CutlayerError):
    """A checkpoint is damaged, belongs to another run, or cannot be written."""


class ConfigError(CutlayerError, ValueError):
    """The configuration of a run is wrong. The message has one line a problem."""


class MessageError(CutlayerError, ValueError):
    """A message between client and server is malformed, or comes where none or another is expected."""


class RunError(CutlayerError):
    """One of several runs that were started together failed in its process."""


class AbsentError(MessageError):
    """No message comes, because the client is not there any more."""


class NetworkError(CutlayerError, OSError):
    """A peer cannot be reached, or an address cannot be listened on."""


class RefusedError(NetworkError):
    """The other side says no. The message has its reason."""


class NotNowError(RefusedError):
    """The other side says no for now: the same may be welcome later."""


class MovedError(RefusedError):
    """The other side says where else to ask: at `address`."""

    def __init__(self, message: str, address: str) -> None:
        super().__init__(message)
        self.address = address


class RankLostError(NetworkError):
    """Another rank of the server is gone, so this one cannot go on. torchrun starts all of them again."""


class RollbackError(NetworkError):
    """What a client held in memory is lost: the run has to go on from its last checkpoint."""


class CredentialError(NetworkError):
    """A certificate, key or token is missing, damaged, expired or not accepted, or not safe where it is."""


class UnreachableError(NetworkError):
    """Nobody answers at an address, an address cannot be used, or a connection cannot be made or kept."""


class DivergedError(CutlayerError, ArithmeticError):
    """The loss, or a tensor on its way to the wire, became NaN or infinite. `step` says when."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step
