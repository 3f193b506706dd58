//! Run directory to terminal page and HTML page.
