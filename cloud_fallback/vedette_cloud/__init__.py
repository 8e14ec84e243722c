"""Reference server of a large model: Open Inference Protocol, batching, admission; one box or Ray Serve."""
