# frozen_string_literal: true

require "socket"
require "json"
require "cgi/escape"

require_relative "ringwell/version"
require_relative "ringwell/errors"
require_relative "ringwell/value"
require_relative "ringwell/request"
require_relative "ringwell/allocation"
require_relative "ringwell/batch"
require_relative "ringwell/allocator"
require_relative "ringwell/deadline"
require_relative "ringwell/endpoint"
require_relative "ringwell/addresses"
require_relative "ringwell/endpoints"
require_relative "ringwell/response"
require_relative "ringwell/connection"
require_relative "ringwell/connections"
require_relative "ringwell/client"

# Numbers from a Ringwell server, in plain linear Ruby.
#
# The only state outside of objects is the default client, which nothing in the gem uses but the
# view helper of Rails. Everything else is asked for by its own file: "ringwell/fake",
# "ringwell/rack", "ringwell/rails".
module Ringwell
  class << self
    # Sets the default instance; nil takes it away.
    #
    # @param client [Allocator, nil] a {Client}, or whatever answers like one
    attr_writer :client

    # The default instance.
    #
    # @return [Allocator]
    # @raise [ConfigError] if none was set
    def client
      @client or raise ConfigError, "Ringwell.client is not set: " \
                                    "Ringwell.client = Ringwell::Client.new(\"http://…\")"
    end
  end
end
