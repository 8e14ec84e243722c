"""From a frame's planes to the model's tensor, and from its outputs to answers. Pure."""
