"""Short loops that map reductions over rows and move centres. They know neither files nor Dask."""
