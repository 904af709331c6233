"""Looking at a run before it trains: summary, schedules, learning-rate range, profile, dry run."""
