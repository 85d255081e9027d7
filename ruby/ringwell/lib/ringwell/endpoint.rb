# frozen_string_literal: true

module Ringwell
  # Where a server listens: "http://HOST:PORT" or "unix:PATH".
  class Endpoint < Value
    value_fields :text

    HTTP = %r{\Ahttp://(?<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?<port>\d{1,5}))?/?\z}

    # @return [String] for the header of that name
    attr_reader :host

    # @raise [ConfigError] says what was expected
    def initialize(text:)
      @text = Value.copy(text.to_s)
      if @text.start_with?("unix:")
        @path = @text.delete_prefix("unix:").freeze
        @host = "localhost"
        @path.empty? and raise ConfigError, "endpoint #{@text.inspect} names no socket"
      else
        read_http
      end
      freeze
    end

    def to_s = text

    # The addresses to try, in this order.
    #
    # @return [Array<Addrinfo>]
    # @raise [ConnectError, DeadlineExceeded]
    def addresses(deadline)
      return [Addrinfo.unix(@path)] if @path
      return [Addrinfo.tcp(@name, @port)] if @literal

      look_up(deadline)
    rescue SocketError => error
      raise ConnectError, "#{self}: #{error.message}"
    end

    private

    # Looking up a name may take longer than anybody has time, and cannot be interrupted: a thread
    # does it, which nobody waits for then. (Thread#join with a limit would be shorter, but under a
    # scheduler Ruby 3.1 passes over the limit.)
    def look_up(deadline)
      mutex = Mutex.new
      done = ConditionVariable.new
      outcome = nil
      Thread.new do
        found = begin
          Addrinfo.getaddrinfo(@name, @port, nil, :STREAM)
        rescue SocketError => error
          error
        end
        mutex.synchronize { (outcome = found) && done.signal }
      end
      mutex.synchronize { done.wait(mutex, deadline.left!("address of #{self}")) until outcome }
      outcome.is_a?(SocketError) ? raise(outcome) : outcome
    end

    def read_http
      parts = HTTP.match(text) or
        raise ConfigError, "endpoint #{text.inspect} is neither http://HOST:PORT nor unix:PATH " \
                           "(for TLS, let a proxy on this machine speak it)"
      @name = parts[:host].delete("[]").freeze
      @port = (parts[:port] || 80).to_i
      @port.between?(1, 65_535) or raise ConfigError, "endpoint #{text.inspect} has no such port"
      @literal = @name.match?(/\A[\d.]+\z/) || @name.include?(":")
      @host = "#{parts[:host]}:#{@port}"
    end
  end
end
