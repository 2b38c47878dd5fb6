"""Groups of rows, and sums, minima and maxima of the numbers in each group."""
