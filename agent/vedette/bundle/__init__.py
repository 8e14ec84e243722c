"""Model bundles: a folder that holds a model and everything needed to answer correctly with it.

- `folder`: load and seal a bundle; the only module here that reads a bundle's files
- `golden`: the inputs with known answers that a bundle carries
- `compatibility`: is this runtime new enough for that bundle
- `checksums`, `names`, `labels`, `rules`, `onnxfile`, `tflitefile`: the single checks, pure
"""
