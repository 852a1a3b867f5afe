"""What gets people onto their hardware: whether a model will run here."""

from tenuto.field.fit import Room, require_encoder_room, require_room
from tenuto.field.memory import available_bytes
from tenuto.field.model_check import Conditions, check_model
from tenuto.field.report import ModelReport, PrecisionFit, TensorType

__all__ = [
    "Conditions",
    "ModelReport",
    "PrecisionFit",
    "Room",
    "TensorType",
    "available_bytes",
    "check_model",
    "require_encoder_room",
    "require_room",
]
