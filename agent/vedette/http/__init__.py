"""What every HTTP client here shares: headers, and a watchdog that cuts what makes no progress."""
