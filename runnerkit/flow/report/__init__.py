"""Looking at runs: records of work dirs, the list and the comparison of runs, and the report as one HTML file."""
