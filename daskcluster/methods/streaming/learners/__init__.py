"""What a stream can learn."""
