"""Tests of `daskcluster.storage`."""
