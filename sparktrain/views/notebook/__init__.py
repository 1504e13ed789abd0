"""What a notebook shows: results as HTML with small plots, and the views of a run as drawings."""
