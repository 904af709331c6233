"""Any moment of a run again: trained once more up to there, compared, proved."""
