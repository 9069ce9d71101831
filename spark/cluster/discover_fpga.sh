#!/usr/bin/env bash
# Lists this machine's FPGAs for Spark: the value of spark.executor.resource.fpga.discoveryScript (see docs/reference/spark-batch.md).
exec "${PYSPARK_PYTHON:-python3}" -m millrace.spark.cluster.discovery fpga
