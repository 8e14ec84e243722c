"""Making deltas: finds the tensors of two models, pairs them, predicts one from the other, packs what is left."""
