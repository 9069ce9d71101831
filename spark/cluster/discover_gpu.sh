#!/usr/bin/env bash
# Tells Spark which GPUs this machine has: the value of spark.executor.resource.gpu.discoveryScript (see docs/spark.md).
exec "${PYSPARK_PYTHON:-python3}" -m millrace.spark.cluster.discovery gpu
