"""`gput bench transfer`: a dataset's file into GPU memory over each link, beside what one core's cipher and the bare server do."""
