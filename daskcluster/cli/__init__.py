"""The command line: thin commands on top of `daskcluster.jobs`, imported when they are called."""
