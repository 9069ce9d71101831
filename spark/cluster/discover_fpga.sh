#!/usr/bin/env bash
# Tells Spark which FPGAs this machine has: the value of spark.executor.resource.fpga.discoveryScript (see docs/spark.md).
exec "${PYSPARK_PYTHON:-python3}" -m millrace.spark.cluster.discovery fpga
