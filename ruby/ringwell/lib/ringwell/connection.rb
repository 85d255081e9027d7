# frozen_string_literal: true

module Ringwell
  # One kept-alive connection to one endpoint. It belongs to one call from checkout to checkin, so
  # its state is not shared.
  #
  # All calls are non-blocking, and all waits are limited by a deadline, so that both threads and a
  # `Fiber::Scheduler` can run other work. `TCPSocket.new` is not used, because since Ruby 3.4 it
  # blocks the whole scheduler while it connects.
  class Connection
    READ_BYTES = 16_384

    # @return [Endpoint]
    attr_reader :endpoint
    # @return [Float] the time of its last use, on the monotonic clock
    attr_reader :used_at

    # Connects.
    #
    # @param endpoint [Endpoint]
    # @param addresses [Array<Addrinfo>] the endpoint's addresses, at least one
    # @raise [ConnectError, DeadlineExceeded]
    def initialize(endpoint, addresses, deadline)
      @endpoint = endpoint
      @answered = false
      addresses.each_with_index do |address, tried|
        return connect(address, deadline.part(addresses.size - tried))
      rescue SystemCallError, DeadlineExceeded => error
        # An address that does not answer uses only its share of the time. The rest is for the next
        # addresses.
        next if tried + 1 < addresses.size
        raise if error.is_a?(DeadlineExceeded)

        raise ConnectError, "#{endpoint}: #{error.message}"
      end
    end

    # Sends a request and reads its answer.
    #
    # @param bytes [String] head and body, sent in one write, so that no delayed acknowledgement can
    #   separate them
    # @return [Response]
    # @raise [ConnectionLost, DeadlineExceeded, ProtocolError]
    def call(bytes, deadline)
      @answered = false
      write(bytes, deadline)
      response = Response.new { |buffer| read(buffer, deadline) }
      @used_at = Deadline.now
      response
    end

    # Whether any byte of an answer to the last request has arrived.
    def answered? = @answered

    # Whether the peer has closed the connection, or has sent bytes without a request.
    def dead?
      @socket.read_nonblock(1, exception: false) != :wait_readable
    rescue SystemCallError
      true
    end

    def close = @socket.close

    private

    def connect(address, deadline)
      @socket = Socket.new(address.afamily, Socket::SOCK_STREAM, 0)
      @socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) if address.ip?
      if @socket.connect_nonblock(address, exception: false) == :wait_writable
        wait(:wait_writable, deadline)
        @socket.connect_nonblock(address, exception: false)
      end
      @used_at = Deadline.now
    ensure
      # Closes the socket after any failure, even if the waiting thread or fiber was stopped. There
      # is no socket if the process has run out of file descriptors.
      @socket&.close unless @used_at
    end

    def write(bytes, deadline)
      until bytes.empty?
        written = @socket.write_nonblock(bytes, exception: false)
        if written == :wait_writable
          wait(:wait_writable, deadline)
        else
          bytes = bytes.byteslice(written..)
        end
      end
    rescue Errno::EPIPE, Errno::ECONNRESET
      # A server that refuses a long body may answer before it has read the body, so an answer may
      # have arrived.
      nil
    end

    def read(buffer, deadline)
      while (chunk = @socket.read_nonblock(READ_BYTES, exception: false)) == :wait_readable
        wait(:wait_readable, deadline)
      end
      return unless chunk

      @answered = true
      buffer << chunk
    rescue SystemCallError => error
      raise ConnectionLost, "#{endpoint}: #{error.message}"
    end

    def wait(readiness, deadline)
      left = deadline.left!(endpoint)
      @socket.public_send(readiness, left) or deadline.left!(endpoint)
    end
  end
end
