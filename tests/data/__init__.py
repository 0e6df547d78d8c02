"""Tests of `daskcluster.data`."""
