module windrow.io/gobrpc

go 1.21
