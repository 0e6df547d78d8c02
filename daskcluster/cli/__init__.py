"""The command line: thin commands over `daskcluster.jobs`, imported when they are called."""
