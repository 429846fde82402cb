"""One model over several processes: tensor parallelism inside a layer, pipeline parallelism over layers."""
