"""Train the embedded RoomWorld model from scratch: vision stage, token pool, language stage."""
