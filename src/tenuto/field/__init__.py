"""What gets people onto their hardware: whether a model will run here."""
